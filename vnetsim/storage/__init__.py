"""Everything that writes or reads a folder: files, checksums, tables, records."""
