"""`python -m keras_attention.applications.command` is the command `keras-attention`."""

import sys

from keras_attention.applications.command import main

sys.exit(main())
