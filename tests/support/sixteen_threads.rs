//! Sixteen tests at a time, for programs whose tests mostly wait, unless `RUST_TEST_THREADS` says otherwise. The harness reads this variable
//! when it starts, and only a function that runs before `main` can set it for one program and for no other.

#[cfg(target_os = "linux")]
#[used]
#[allow(unsafe_code)] // a section of the program file; before `main` no other thread reads the environment
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = {
    extern "C" fn set_test_threads() {
        if std::env::var_os("RUST_TEST_THREADS").is_none() {
            unsafe { std::env::set_var("RUST_TEST_THREADS", "16") };
        }
    }
    set_test_threads
};
