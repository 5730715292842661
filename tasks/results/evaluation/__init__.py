"""What is stored of evaluations, and what was fitted on known answers: temperatures and margins."""
