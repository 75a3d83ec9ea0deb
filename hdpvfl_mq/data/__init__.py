"""A party's own rows: from files of any common kind to checked numbers. Nothing here is sent."""
