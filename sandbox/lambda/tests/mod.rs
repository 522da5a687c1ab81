//! Each behaviour, as the document has it or as it was told from the field.
