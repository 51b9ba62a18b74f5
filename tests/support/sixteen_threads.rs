//! Runs sixteen tests at a time in programs whose tests mostly wait, unless `RUST_TEST_THREADS` is set. The harness reads this variable at its start,
//! and only a function that runs before `main` can set it for one program alone.

#[cfg(target_os = "linux")]
#[used]
#[allow(unsafe_code)] // a section of the program file; no other thread reads the environment before `main`
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = {
    extern "C" fn set_test_threads() {
        if std::env::var_os("RUST_TEST_THREADS").is_none() {
            unsafe { std::env::set_var("RUST_TEST_THREADS", "16") };
        }
    }
    set_test_threads
};
