"""Border of the HTTP API: every route that dataset_conversion does not serve."""

from coordination.http.border import make_handler

from api.operations import OPERATIONS, PAGES

lambda_handler = make_handler(OPERATIONS, PAGES)
