"""The queue: its only message type, the publisher, and the transports to Redis and RabbitMQ."""
