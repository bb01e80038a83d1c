"""What the functions need of AWS, behind small ports. boto3 is imported nowhere else, and only when it is used."""
