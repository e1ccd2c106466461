//! The operators' HTTP/JSON API.
