"""What the person is told, and the audit record that proves it. Pure: no clock, no I/O."""
