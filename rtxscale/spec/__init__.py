"""A sweep as plain, validated data."""
