"""What every long-running process of ours needs: settings, clients, topics, delivery, patience, logs, health."""
