//! One of each thing that `core/clippy.toml` bans.

pub type Banned0 = std::fs::DirBuilder;
pub type Banned1 = std::fs::File;
pub type Banned2 = std::fs::OpenOptions;
pub type Banned3 = std::net::TcpListener;
pub type Banned4 = std::net::TcpStream;
pub type Banned5 = std::net::UdpSocket;
pub type Banned6 = std::os::unix::net::UnixDatagram;
pub type Banned7 = std::os::unix::net::UnixListener;
pub type Banned8 = std::os::unix::net::UnixStream;
pub type Banned9 = std::process::Command;
pub type Banned10 = std::sync::Barrier;
pub type Banned11 = std::sync::Condvar;
pub type Banned12 = std::thread::Builder;
pub type Banned13 = std::thread::JoinHandle<()>;
pub type Banned14 = std::time::Instant;
pub type Banned15 = std::time::SystemTime;

pub fn banned_0() {
    let _ = std::env::args();
}

pub fn banned_1() {
    let _ = std::env::args_os();
}

pub fn banned_2() {
    let _ = std::env::current_dir();
}

pub fn banned_3() {
    let _ = std::env::current_exe();
}

pub fn banned_4() {
    let _ = std::env::set_current_dir("");
}

pub fn banned_5() {
    let _ = std::env::temp_dir();
}

pub fn banned_6() {
    let _ = std::env::var("");
}

pub fn banned_7() {
    let _ = std::env::var_os("");
}

pub fn banned_8() {
    let _ = std::env::vars();
}

pub fn banned_9() {
    let _ = std::env::vars_os();
}

pub fn banned_10() {
    let _ = std::fs::canonicalize("");
}

pub fn banned_11() {
    let _ = std::fs::copy("", "");
}

pub fn banned_12() {
    let _ = std::fs::create_dir("");
}

pub fn banned_13() {
    let _ = std::fs::create_dir_all("");
}

pub fn banned_14() {
    let _ = std::fs::exists("");
}

pub fn banned_15() {
    let _ = std::fs::metadata("");
}

pub fn banned_16() {
    let _ = std::fs::read("");
}

pub fn banned_17() {
    let _ = std::fs::read_dir("");
}

pub fn banned_18() {
    let _ = std::fs::read_link("");
}

pub fn banned_19() {
    let _ = std::fs::read_to_string("");
}

pub fn banned_20() {
    let _ = std::fs::remove_dir("");
}

pub fn banned_21() {
    let _ = std::fs::remove_dir_all("");
}

pub fn banned_22() {
    let _ = std::fs::remove_file("");
}

pub fn banned_23() {
    let _ = std::fs::rename("", "");
}

pub fn banned_24() {
    let _ = std::fs::symlink_metadata("");
}

pub fn banned_25() {
    let _ = std::fs::write("", "");
}

pub fn banned_26() {
    let _ = std::io::stderr();
}

pub fn banned_27() {
    let _ = std::io::stdin();
}

pub fn banned_28() {
    let _ = std::io::stdout();
}

pub fn banned_29() {
    let _ = std::net::ToSocketAddrs::to_socket_addrs("");
}

pub fn banned_30() {
    let _ = std::path::Path::new("").canonicalize();
}

pub fn banned_31() {
    let _ = std::path::Path::new("").exists();
}

pub fn banned_32() {
    let _ = std::path::Path::new("").is_dir();
}

pub fn banned_33() {
    let _ = std::path::Path::new("").is_file();
}

pub fn banned_34() {
    let _ = std::path::Path::new("").metadata();
}

pub fn banned_35() {
    let _ = std::path::Path::new("").read_dir();
}

pub fn banned_36() {
    let _ = std::path::Path::new("").read_link();
}

pub fn banned_37() {
    let _ = std::path::Path::new("").symlink_metadata();
}

pub fn banned_38() {
    let _ = std::path::Path::new("").try_exists();
}

pub fn banned_39() {
    let _ = std::process::abort();
}

pub fn banned_40() {
    let _ = std::process::exit(0);
}

pub fn banned_41() {
    let _ = std::process::id();
}

pub fn banned_42() {
    let _ = std::sync::mpsc::channel::<()>();
}

pub fn banned_43() {
    let _ = std::sync::mpsc::sync_channel::<()>(1);
}

pub fn banned_44() {
    let _ = std::thread::available_parallelism();
}

pub fn banned_45() {
    let _ = std::thread::park();
}

pub fn banned_46() {
    let _ = std::thread::park_timeout(std::time::Duration::ZERO);
}

pub fn banned_47() {
    let _ = std::thread::scope(|_| ());
}

pub fn banned_48() {
    let _ = std::thread::sleep(std::time::Duration::ZERO);
}

pub fn banned_49() {
    let _ = std::thread::spawn(|| ());
}

pub fn banned_50() {
    let _ = std::thread::yield_now();
}

pub fn banned_51() {
    let _ = std::time::Instant::now();
}

pub fn banned_52() {
    let _ = std::time::UNIX_EPOCH.elapsed();
}

pub fn banned_53() {
    let _ = std::time::SystemTime::now();
}

pub fn prints() {
    dbg!(0);
    eprint!("");
    eprintln!();
    print!("");
    println!();
}
