"""Plain scripts, one per contestant and task; each reports what it measured as one JSON object.

They are started by path, so that those which must never import farandole do not.
"""
