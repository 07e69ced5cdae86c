"""The public library: `from travois import Session`. Its names are those of `travois` itself."""
