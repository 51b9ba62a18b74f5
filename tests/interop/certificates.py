"""Certificates, made when they are needed: some sign themselves, others are signed by an authority."""

import datetime
import ipaddress
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


@dataclass(frozen=True)
class Certificate:
    pem: str
    key: str

    @property
    def some_line(self):
        """A piece by which it is recognised wherever it is printed."""
        return self.pem.splitlines()[2]


def self_signed(name):
    """Of several that are trusted one is found by its name, so they need different ones."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.timezone.utc)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject).issuer_name(subject).public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1)).not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256()))
    return Certificate(in_pem(certificate), private_in_pem(key))


class Authority:
    def __init__(self, name):
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        own = self.builder(self.name, self.key, 30).add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self.pem = in_pem(own.sign(self.key, hashes.SHA256()))

    def builder(self, subject, key, days):
        now = datetime.datetime.now(datetime.timezone.utc)
        return (
            x509.CertificateBuilder()
            .subject_name(subject).issuer_name(self.name).public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1)).not_valid_after(now + datetime.timedelta(days=days)))

    def sign(self, names=(), addresses=(), uris=(), days=2):
        """A certificate for these DNS names, IP addresses and URIs."""
        key = ec.generate_private_key(ec.SECP256R1())
        alternatives = [*map(x509.DNSName, names), *map(x509.UniformResourceIdentifier, uris),
                        *(x509.IPAddress(ipaddress.ip_address(address)) for address in addresses)]
        certificate = (
            self.builder(x509.Name([]), key, days)
            .add_extension(x509.SubjectAlternativeName(alternatives), critical=True)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.KeyUsage(True, False, False, False, False, False, False, False, False), critical=True)
            .sign(self.key, hashes.SHA256()))
        return Certificate(in_pem(certificate), private_in_pem(key))


def in_pem(certificate):
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def private_in_pem(key):
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()).decode()
