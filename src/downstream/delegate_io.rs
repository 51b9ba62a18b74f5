//! Reads and writes through an enum of several kinds of byte streams.

/// Implements reading and writing for an enum by the stream in its variant.
macro_rules! delegate_io {
    ($of:ident { $($variant:ident),+ }) => {
        impl AsyncRead for $of {
            fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
                match self.get_mut() { $($of::$variant(stream) => Pin::new(stream).poll_read(cx, buffer),)+ }
            }
        }

        impl AsyncWrite for $of {
            fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
                match self.get_mut() { $($of::$variant(stream) => Pin::new(stream).poll_write(cx, bytes),)+ }
            }

            fn poll_write_vectored(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                pieces: &[IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                match self.get_mut() { $($of::$variant(stream) => Pin::new(stream).poll_write_vectored(cx, pieces),)+ }
            }

            fn is_write_vectored(&self) -> bool {
                match self { $($of::$variant(stream) => stream.is_write_vectored(),)+ }
            }

            fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                match self.get_mut() { $($of::$variant(stream) => Pin::new(stream).poll_flush(cx),)+ }
            }

            fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                match self.get_mut() { $($of::$variant(stream) => Pin::new(stream).poll_shutdown(cx),)+ }
            }
        }
    };
}
pub(super) use delegate_io;
