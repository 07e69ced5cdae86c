"""Long-term memory on disk: folders of plain files, with a history of all that was changed."""
