"""The layers of a Transformer, on arrays and on paper, and models of known sizes.

Adds to the core's layers: ``Embedding``, ``Positions``, ``LayerNorm``, ``BatchNorm``, ``Dropout``,
``SequenceMean``, ``Attention``, and layers made of layers: ``Residual``, ``Checkpoint``,
``TransformerBlock``. ``mlp``, ``gpt``, ``gpt3_175b`` and ``bert_large`` make models of them; ``unpacked``
takes blocks apart.

Each is a ``core.layers.Layer``: a forward with its gradients beside it, and an outline that says on arrays
without contents what it would make. Lesson 14, "Transformers and giants, in bytes".
"""
