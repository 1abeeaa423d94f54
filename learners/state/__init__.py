"""What is kept between rounds: models of the server and of silos, key encoders and queues."""
