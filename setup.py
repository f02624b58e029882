"""Build script: installs the top-level `applications` folder as `keras_attention.applications`."""

from setuptools import find_packages, setup

PACKAGES = find_packages(include=["keras_attention", "keras_attention.*"])
APPLICATIONS = [
    "keras_attention." + name for name in find_packages(include=["applications", "applications.*"])
]

setup(
    name="keras-attention",
    version="0.1.0",
    packages=PACKAGES + APPLICATIONS,
    package_dir={
        "keras_attention": "keras_attention",
        "keras_attention.applications": "applications",
    },
    python_requires=">=3.10",
    install_requires=["keras>=3.12", "tensorflow>=2.19", "keras-nlp", "tensorflow-text"],
)
