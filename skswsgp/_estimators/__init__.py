"""The estimators that a user of scikit-learn sees."""
