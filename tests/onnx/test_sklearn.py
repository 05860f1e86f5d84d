"""Models of scikit-learn, as skl2onnx writes them: what they predict here is what they predict there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime
import pytest

import glowpy
from glowpy.core.tensor import Array

sklearn = pytest.importorskip("sklearn")
skl2onnx = pytest.importorskip("skl2onnx")

from skl2onnx.common import _container, data_types  # noqa: E402
from sklearn import (  # noqa: E402
    calibration,
    cluster,
    compose,
    datasets,
    discriminant_analysis,
    ensemble,
    feature_selection,
    gaussian_process,
    impute,
    linear_model,
    naive_bayes,
    neighbors,
    neural_network,
    pipeline,
    preprocessing,
    svm,
)
from sklearn import tree as sklearn_tree  # noqa: E402
from sklearn.feature_extraction import text  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
"""Of the other packages: they warn of what they will change."""

CLASSIFIERS: dict[str, Callable[[], Any]] = {
    "logistic regression": lambda: linear_model.LogisticRegression(max_iter=500),
    "ridge": linear_model.RidgeClassifier,
    "decision tree": lambda: sklearn_tree.DecisionTreeClassifier(random_state=0),
    "random forest": lambda: ensemble.RandomForestClassifier(12, random_state=0),
    "extra trees": lambda: ensemble.ExtraTreesClassifier(8, random_state=0),
    "gradient boosting": lambda: ensemble.GradientBoostingClassifier(
        n_estimators=8, random_state=0
    ),
    "ada boost": lambda: ensemble.AdaBoostClassifier(n_estimators=4, random_state=0),
    "bagging": lambda: ensemble.BaggingClassifier(n_estimators=3, random_state=0),
    "support vectors": lambda: svm.SVC(probability=True, random_state=0),
    "polynomial support vectors": lambda: pipeline.make_pipeline(
        preprocessing.StandardScaler(), svm.SVC(kernel="poly", probability=True, random_state=0)
    ),
    "linear support vectors": lambda: svm.LinearSVC(random_state=0),
    "naive Bayes": naive_bayes.GaussianNB,
    "perceptron": lambda: neural_network.MLPClassifier((9,), max_iter=60, random_state=0),
    "calibrated": lambda: calibration.CalibratedClassifierCV(linear_model.RidgeClassifier(), cv=2),
    "scaled": lambda: pipeline.make_pipeline(
        impute.SimpleImputer(), preprocessing.StandardScaler(), svm.SVC(probability=True)
    ),
    "normalized": lambda: pipeline.make_pipeline(
        preprocessing.Normalizer("l1"),
        preprocessing.Binarizer(threshold=0.25),
        linear_model.LogisticRegression(),
    ),
    "selected": lambda: pipeline.make_pipeline(
        feature_selection.SelectKBest(k=2), sklearn_tree.DecisionTreeClassifier(random_state=0)
    ),
}
REGRESSORS: dict[str, Callable[[], Any]] = {
    "linear": linear_model.LinearRegression,
    "lasso": linear_model.Lasso,
    "random forest": lambda: ensemble.RandomForestRegressor(8, max_depth=6, random_state=0),
    "gradient boosting": lambda: ensemble.GradientBoostingRegressor(n_estimators=8, random_state=0),
    "support vectors": lambda: svm.SVR(C=10),
    "sigmoid support vectors": lambda: svm.NuSVR(kernel="sigmoid"),
    "perceptron": lambda: neural_network.MLPRegressor(
        hidden_layer_sizes=(9,), max_iter=60, random_state=0
    ),
    "polynomial": lambda: pipeline.make_pipeline(
        preprocessing.RobustScaler(),
        preprocessing.PolynomialFeatures(2),
        linear_model.Ridge(),
    ),
}
CONVERTED: dict[str, Callable[[], Any]] = {
    "boosted histograms": lambda: ensemble.HistGradientBoostingClassifier(max_iter=2),
    "Gaussian process": lambda: gaussian_process.GaussianProcessRegressor(
        gaussian_process.kernels.RBF() + gaussian_process.kernels.WhiteKernel()
    ),
    "weighted neighbours": lambda: neighbors.KNeighborsRegressor(4, weights="distance"),
    "neighbours by blocks": lambda: neighbors.KNeighborsClassifier(4, metric="manhattan"),
    "logistic perceptron": lambda: neural_network.MLPClassifier(
        (9,), activation="logistic", max_iter=20, random_state=0
    ),
    "bins": lambda: pipeline.make_pipeline(
        preprocessing.KBinsDiscretizer(3, encode="onehot-dense"), linear_model.Ridge()
    ),
}
"""What onnxruntime computes is compared with, where it is not exactly what scikit-learn does."""


def written(estimator: Any, x: Array) -> bytes:
    options = {} if not hasattr(estimator, "predict_proba") else {id(estimator): {"zipmap": False}}
    model = skl2onnx.to_onnx(estimator, x[:1], options=options or None)
    return bytes(model.SerializeToString())


def trained(make: Callable[[], Any], load: Callable[..., tuple[Array, Array]]) -> tuple[Any, Array]:
    """A model of a third of the examples; features are floats."""
    x, y = load(return_X_y=True)
    x = x.astype(np.float32)
    return make().fit(x[::3], y[::3]), x[1::7]


@pytest.mark.parametrize("data", ["iris", "breast_cancer"])
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_classifier(name: str, data: str) -> None:
    estimator, x = trained(CLASSIFIERS[name], getattr(datasets, f"load_{data}"))
    content = written(estimator, x)
    decided = _decided(estimator, x)
    for backend in ("interpreter", "cpu"):
        labels, scores = glowpy.InferenceSession(content, backend=backend).run(None, {"X": x})
        assert (labels == estimator.predict(x))[decided].all()
        if hasattr(estimator, "predict_proba"):
            np.testing.assert_allclose(scores, estimator.predict_proba(x), atol=1e-5)


def test_discriminants() -> None:
    """Of three classes: of two, skl2onnx writes other probabilities than scikit-learn gives."""
    estimator, x = trained(discriminant_analysis.LinearDiscriminantAnalysis, datasets.load_iris)
    labels, scores = glowpy.InferenceSession(written(estimator, x)).run(None, {"X": x})
    assert labels.tolist() == estimator.predict(x).tolist()
    np.testing.assert_allclose(scores, estimator.predict_proba(x), atol=1e-5)


def _decided(estimator: Any, x: Array) -> Array:
    """Examples whose classes are not decided by how numbers are rounded."""
    if not hasattr(estimator, "decision_function"):
        return np.ones(len(x), np.bool_)
    scores = estimator.decision_function(x)
    if scores.ndim == 1:
        return np.asarray(np.abs(scores) > 1e-4)
    best = np.sort(scores, 1)
    return np.asarray(best[:, -1] - best[:, -2] > 1e-4)


@pytest.mark.parametrize("name", REGRESSORS)
def test_regressor(name: str) -> None:
    estimator, x = trained(REGRESSORS[name], datasets.load_diabetes)
    wanted = estimator.predict(x)
    for backend in ("interpreter", "cpu"):
        session = glowpy.InferenceSession(written(estimator, x), backend=backend)
        (got,) = session.run(None, {"X": x})
        np.testing.assert_allclose(got[:, 0], wanted, rtol=1e-5, atol=1e-5 * np.abs(wanted).max())


@pytest.mark.parametrize("name", CONVERTED)
def test_as_onnxruntime(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_container, "make_node", _of_integers(_container.make_node))
    estimator, x = trained(CONVERTED[name], datasets.load_iris)
    if "histograms" in name:
        x[::3, 1] = np.nan
    model = skl2onnx.to_onnx(estimator, x[:1], target_opset={"": 18, "ai.onnx.ml": 3})
    content = model.SerializeToString()
    reference = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    expected = reference.run(None, {"X": x})
    for backend in ("interpreter", "cpu"):
        results = glowpy.InferenceSession(content, backend=backend).run(None, {"X": x})
        for got, wanted in zip(map(_numbers, results), map(_numbers, expected), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


def _numbers(result: Any) -> Array:
    """Probabilities out of a map for each example."""
    maps = isinstance(result, list)
    return np.array([list(one.values()) for one in result]) if maps else np.asarray(result)


def _of_integers(make_node: Callable[..., Any]) -> Callable[..., Any]:
    """What says whether NaN goes with the smaller: protobuf takes no booleans for integers."""

    def make(*names: Any, **attributes: Any) -> Any:
        for name, values in attributes.items():
            if name == "nodes_missing_value_tracks_true":
                attributes[name] = [int(value) for value in values]
        return make_node(*names, **attributes)

    return make


def test_missing_numbers_as_neighbours_have_them() -> None:
    """Functions of the model's own, at another opset than the model."""
    x = np.random.default_rng(0).random((30, 3)).astype(np.float32)
    estimator = impute.KNNImputer(n_neighbors=2).fit(x[:12])
    model = skl2onnx.to_onnx(estimator, x[:1], target_opset={"": 22, "ai.onnx.ml": 3})
    assert {opset.version for f in model.functions for opset in f.opset_import} == {1, 21}
    x[::4, 1] = np.nan
    (got,) = glowpy.InferenceSession(model.SerializeToString()).run(None, {"X": x})
    np.testing.assert_allclose(got, estimator.transform(x), rtol=1e-5)


def test_clusters() -> None:
    estimator, x = trained(lambda: cluster.KMeans(3, n_init=1, random_state=0), datasets.load_iris)
    labels, distances = glowpy.InferenceSession(written(estimator, x)).run(None, {"X": x})
    assert labels.tolist() == estimator.predict(x).tolist()
    np.testing.assert_allclose(distances, estimator.transform(x), rtol=1e-4)


def test_neighbours() -> None:
    """By a Scan over the examples of the training."""
    estimator, x = trained(lambda: neighbors.KNeighborsClassifier(3), datasets.load_iris)
    labels, scores = glowpy.InferenceSession(written(estimator, x)).run(None, {"X": x})
    assert labels.tolist() == estimator.predict(x).tolist()
    np.testing.assert_allclose(scores, estimator.predict_proba(x), atol=1e-5)


def test_outliers() -> None:
    x = datasets.load_iris(return_X_y=True)[0].astype(np.float32)
    estimator = ensemble.IsolationForest(n_estimators=5, random_state=0).fit(x[::3])
    model = skl2onnx.to_onnx(estimator, x[:1], target_opset={"": 17, "ai.onnx.ml": 3})
    labels, scores = glowpy.InferenceSession(model.SerializeToString()).run(None, {"X": x[1::7]})
    assert labels[:, 0].tolist() == estimator.predict(x[1::7]).tolist()
    np.testing.assert_allclose(scores[:, 0], estimator.decision_function(x[1::7]), atol=1e-5)


def test_labels_that_are_texts_and_maps_of_probabilities() -> None:
    """What skl2onnx writes if it is not told otherwise, and what onnxruntime gives for it."""
    x, y = datasets.load_iris(return_X_y=True)
    x, names = x.astype(np.float32), np.array(["setosa", "versicolor", "virginica"])
    estimator = linear_model.LogisticRegression(max_iter=500).fit(x, names[y])
    session = glowpy.InferenceSession(skl2onnx.to_onnx(estimator, x[:1]).SerializeToString())
    labels, maps = session.run(None, {"X": x[::20]})
    assert labels.tolist() == estimator.predict(x[::20]).tolist()
    assert [list(one) for one in maps] == [names.tolist()] * len(maps)
    wanted = estimator.predict_proba(x[::20])
    np.testing.assert_allclose([list(one.values()) for one in maps], wanted, atol=1e-5)


def test_columns_of_texts_and_of_numbers() -> None:
    rng = np.random.default_rng(0)
    texts = np.array(["red", "green", "blue"], object)[rng.integers(0, 3, (40, 2))]
    numbers = rng.normal(size=(40, 2)).astype(np.float32)
    y = (numbers[:, 0] > 0) ^ (texts[:, 0] == "red")
    columns = compose.ColumnTransformer(
        [
            ("categories", preprocessing.OneHotEncoder(handle_unknown="ignore"), [0]),
            ("order", preprocessing.OrdinalEncoder(), [1]),
            ("numbers", preprocessing.StandardScaler(), [2, 3]),
        ]
    )
    forest = ensemble.RandomForestClassifier(5, random_state=0)
    table = np.concatenate([texts, numbers.astype(object)], 1)
    estimator = pipeline.make_pipeline(columns, forest).fit(table, y.astype(np.int64))
    types = [
        ("texts", data_types.StringTensorType([None, 2])),
        ("numbers", data_types.FloatTensorType([None, 2])),
    ]
    options = {id(forest): {"zipmap": False}}
    model = skl2onnx.convert_sklearn(estimator, initial_types=types, options=options)
    texts[0, 0] = table[0, 0] = "purple"
    labels, scores = glowpy.InferenceSession(model.SerializeToString()).run(
        None, {"texts": texts, "numbers": numbers}
    )
    assert labels.tolist() == estimator.predict(table).tolist()
    np.testing.assert_allclose(scores, estimator.predict_proba(table), atol=1e-5)


@pytest.mark.parametrize("make", [text.CountVectorizer, text.TfidfVectorizer])
def test_words(make: Callable[..., Any]) -> None:
    texts = np.array(["the red one", "a blue one, blue", "red and red", "blue sky", "Red!"], object)
    estimator = pipeline.make_pipeline(
        make(ngram_range=(1, 2)), linear_model.LogisticRegression()
    ).fit(texts, [1, 0, 1, 0, 1])
    options = {id(estimator): {"zipmap": False}}
    types = [("texts", data_types.StringTensorType([None]))]
    model = skl2onnx.convert_sklearn(estimator, initial_types=types, options=options)
    labels, scores = glowpy.InferenceSession(model.SerializeToString()).run(None, {"texts": texts})
    assert labels.tolist() == estimator.predict(texts).tolist()
    np.testing.assert_allclose(scores, estimator.predict_proba(texts), atol=1e-5)


def test_a_forest_runs_for_any_number_of_examples() -> None:
    estimator, x = trained(CLASSIFIERS["random forest"], datasets.load_iris)
    session = glowpy.InferenceSession(written(estimator, x))
    for number in (1, 2, 9, 0):
        labels, scores = session.run(None, {"X": x[:number]})
        assert labels.shape == (number,)
        assert scores.shape == (number, 3)
        if number:
            assert labels.tolist() == estimator.predict(x[:number]).tolist()
