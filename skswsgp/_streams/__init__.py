"""Old names of classes in `skswsgp.streams`, under which files of models know them."""
