"""The failure that this project exists for, shown beside its cure: one task, three times trained."""
