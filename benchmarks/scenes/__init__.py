"""Methods that find changes of scene, on clips with known ones."""
