"""The catalogue of evaluators: each a pure function from a record to a score.

One evaluator is one file in this folder. To add one, write ``<name>.py`` with

1. a docstring that says what the score means, and where its definition comes from;
2. a pydantic model of its parameters, derived from ``EvaluatorParams``, each field with a description;
3. a function that takes the validated parameters and returns the judge, ``Record -> Score``. What is costly (compiling
   a pattern) is done there, once a shard; heavy libraries are imported there, since the API imports this folder only to
   check parameters;
4. ``EVALUATOR = Evaluator(...)``. ``catalogue`` finds it; there is no list to edit;
5. its table of cases in ``tests/unit/records/test_evaluators_<name>.py``.

A judge *skips* what it cannot judge (no output, no reference); it never scores it 0. It raises nothing on purpose but
``UnscorableError``; whatever else it raises becomes that row's error too. When the meaning of a score changes, raise
``version``: a report names the versions that produced it.
"""
