"""Language servers: diagnostics of edited files, and the LSP tool."""
