"""Why a device waits."""
