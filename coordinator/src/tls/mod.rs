//! The one TLS port.
