"""The HTTP border that api and dataset_conversion share.

Each operation is declared once (`Operation`). From the declarations come the routes, the permission check, validation,
the audit, the idempotency contract and the OpenAPI document. `border.make_handler` turns a set of them into a Lambda
handler for API Gateway HTTP APIs (payload format 2.0).
"""
