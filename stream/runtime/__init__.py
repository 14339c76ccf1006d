"""What every long-running process of ours needs: settings, clients, topics, delivery, retry, logs, health."""
