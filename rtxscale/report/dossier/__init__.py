"""The dossier: every fact that a publication must hold, who says so, and the files to check it by."""
