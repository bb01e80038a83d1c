"""The account and region the stack plays."""

ACCOUNT_ID = "123456789012"
REGION = "us-east-1"
