"""
Which digits should a person read?
==================================

A classifier of handwritten digits is sure of most and unsure of some. If a person reads
the tenth of the images that it is least sure of, how many errors are left among the
others, and do its probabilities say so?
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from skswsgp import SWSGPClassifier
from skswsgp.displays import ReliabilityDisplay

# %%
# 1,797 images of 64 pixels. The first 800 train the model. Its kernel has one
# length-scale for all pixels, about what ``learn_kernel=True`` finds on the first 500,
# and is kept.
X, y = load_digits(return_X_y=True)
X, X_new, y, y_new = X[:800], X[800:], y[:800], y[800:]
kernel = ConstantKernel(100.0) * RBF(60.0)
model = SWSGPClassifier(kernel, learn_kernel=False, random_state=0).fit(X, y)
proba = model.predict_proba(X_new)
label = proba.argmax(axis=1)
wrong = label != y_new
print(f"errors among all images: {wrong.mean():.1%}")

# %%
# A person takes the least sure images first.
order = np.argsort(proba.max(axis=1))
left = wrong[order][::-1].cumsum()[::-1] / np.arange(len(order), 0, -1)
tenth = len(order) // 10
print(f"errors among the surest nine tenths: {left[tenth]:.1%}")
print(f"errors among the least sure tenth: {wrong[order[:tenth]].mean():.1%}")

figure = plt.figure(figsize=(9, 5.2), layout="constrained")
above, below = figure.subfigures(2, 1, height_ratios=[1.7, 1])
curve, reliability = above.subplots(1, 2)
curve.plot(np.arange(len(order)) / len(order), left, color="#0072B2")
curve.axvline(0.1, color="k", ls=":", lw=1)
curve.set(xlabel="share that a person reads", ylabel="errors among the others")
ReliabilityDisplay.from_predictions(y_new, proba, n_bins=10, ax=reliability)
reliability.set_ylim(0.0, 1.05)
for ax, k in zip(below.subplots(1, 8), order, strict=False):
    ax.imshow(X_new[k].reshape(8, 8), cmap="gray_r")
    second, first = np.argsort(proba[k])[-2:]
    ax.set(xticks=[], yticks=[], xlabel=f"is {y_new[k]}")
    ax.set_title(f"{first}? {proba[k, first]:.0%}\n{second}? {proba[k, second]:.0%}")
below.suptitle("the least sure images", fontsize="medium")

# %%
# What was seen: most errors are among the least sure tenth. Points above the diagonal
# say that the model is right more often than it says.

if "--out" in sys.argv:
    folder = Path(sys.argv[sys.argv.index("--out") + 1])
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "digits.png", dpi=120)
else:
    plt.show()
