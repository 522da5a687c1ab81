//! Each real behaviour, as it was seen at the real services.
