"""The whole story on one machine: embedded broker and Redis, real credit data, a real worker."""
