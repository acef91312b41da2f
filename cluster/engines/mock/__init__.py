"""A mock engine: OpenAI-shaped answers without a model, and faults on demand.

For tests, benches, and a demo on platforms without a real engine. Run it with
``python -m cluster.engines.mock --port 0``; ``switches`` lists what it can do
wrong. Pure: no Django, and nothing here is imported by the product.
"""
