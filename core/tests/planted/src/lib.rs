//! One of each thing that `core/clippy.toml` bans.

pub type Banned0 = std::fs::File;
pub type Banned1 = std::fs::OpenOptions;
pub type Banned2 = std::net::TcpListener;
pub type Banned3 = std::net::TcpStream;
pub type Banned4 = std::net::UdpSocket;
pub type Banned5 = std::os::unix::net::UnixListener;
pub type Banned6 = std::os::unix::net::UnixStream;
pub type Banned7 = std::process::Command;
pub type Banned8 = std::sync::Barrier;
pub type Banned9 = std::sync::Condvar;
pub type Banned10 = std::thread::JoinHandle<()>;
pub type Banned11 = std::time::Instant;
pub type Banned12 = std::time::SystemTime;

pub fn banned_0() {
    let _ = std::env::args();
}

pub fn banned_1() {
    let _ = std::env::current_dir();
}

pub fn banned_2() {
    let _ = std::env::temp_dir();
}

pub fn banned_3() {
    let _ = std::env::var("");
}

pub fn banned_4() {
    let _ = std::env::var_os("");
}

pub fn banned_5() {
    let _ = std::env::vars();
}

pub fn banned_6() {
    let _ = std::fs::create_dir("");
}

pub fn banned_7() {
    let _ = std::fs::create_dir_all("");
}

pub fn banned_8() {
    let _ = std::fs::read("");
}

pub fn banned_9() {
    let _ = std::fs::read_dir("");
}

pub fn banned_10() {
    let _ = std::fs::read_to_string("");
}

pub fn banned_11() {
    let _ = std::fs::remove_file("");
}

pub fn banned_12() {
    let _ = std::fs::rename("", "");
}

pub fn banned_13() {
    let _ = std::fs::write("", "");
}

pub fn banned_14() {
    let _ = std::io::stderr();
}

pub fn banned_15() {
    let _ = std::io::stdin();
}

pub fn banned_16() {
    let _ = std::io::stdout();
}

pub fn banned_17() {
    let _ = std::process::abort();
}

pub fn banned_18() {
    let _ = std::process::exit(0);
}

pub fn banned_19() {
    let _ = std::thread::scope(|_| ());
}

pub fn banned_20() {
    let _ = std::thread::sleep(std::time::Duration::ZERO);
}

pub fn banned_21() {
    let _ = std::thread::spawn(|| ());
}

pub fn banned_22() {
    let _ = std::thread::yield_now();
}

pub fn prints() {
    dbg!(0);
    eprint!("");
    eprintln!();
    print!("");
    println!();
}
