"""Operators of `ai.onnx.ml`: against onnxruntime, and against what is written here in plain Python."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

import glowpy
from glowpy.core.tensor import Array
from tests.onnx.ml_models import (
    TreeNode,
    as_doubles,
    expected,
    indexed,
    listed,
    ml_model,
    run,
    totals,
    tree,
)

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
CLASSIFIED = (INT64, FLOAT)
TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
BACKENDS = ("interpreter", "cpu")


def same(actual: list[Array], wanted: list[Array], atol: float = 2e-6) -> None:
    assert len(actual) == len(wanted)
    for got, array in zip(actual, wanted, strict=True):
        assert got.dtype == array.dtype
        assert got.shape == array.shape
        np.testing.assert_allclose(got, array, rtol=1e-5, atol=atol)


# Trees.


def rows(rng: random.Random, number: int, features: int, dtype: Any) -> Array:
    """Thresholds, their neighbours, and what is special."""
    splits = np.array([-1, -0.5, 0, 0.5, 1, 0.1], np.float32).astype(dtype)
    some: list[Array] = [splits]
    if np.dtype(dtype).kind == "f":
        up, down = (np.nextafter(splits, splits.dtype.type(side)) for side in (2, -2))
        some += [up, down, np.array([np.nan, np.inf, -np.inf, -0.0], dtype)]
    values = np.concatenate(some)
    return np.array(rng.choices(values.tolist(), k=number * features), dtype).reshape(number, -1)


def check_forest(rng: random.Random, form: str, aggregate: str, backend: str) -> None:
    targets, features = rng.randint(1, 3), rng.randint(1, 4)
    modes = 7 if form == "indexed" else 6
    trees = [
        tree(rng, rng.randint(0, 4), features, targets, modes) for _ in range(rng.randint(1, 5))
    ]
    dtype = {"listed": np.float32, "doubles": np.float64, "integers": np.int64}.get(
        form, np.float64
    )
    x = rows(rng, 40, features, dtype)
    if form == "indexed":
        for leaf in (n for one in trees for n in one.nodes() if not n.children):
            leaf.weights = {rng.randrange(targets): rng.randint(-8, 8) / 4}
        attributes = indexed(trees, dtype)
        attributes["aggregate_function"] = ("AVERAGE", "SUM", "MIN", "MAX").index(aggregate)
        model = ml_model(
            "TreeEnsemble", [x], (TensorProto.DOUBLE,), 5, n_targets=targets, **attributes
        )
    else:
        attributes = listed(trees, "target", rng)
        opset = 3 if form == "doubles" else 1
        attributes = as_doubles(attributes) if form == "doubles" else attributes
        model = ml_model(
            "TreeEnsembleRegressor",
            [x],
            opset=opset,
            n_targets=targets,
            aggregate_function=aggregate,
            **attributes,
        )
    (got,) = run(model, [x], backend)
    np.testing.assert_allclose(got, totals(trees, x, targets, aggregate), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("form", ["listed", "doubles", "integers", "indexed"])
def test_trees_are_walked_as_the_standard_says(form: str, aggregate: str) -> None:
    for seed in range(12):
        check_forest(random.Random(f"{form} {aggregate} {seed}"), form, aggregate, "interpreter")
    check_forest(random.Random(f"{form} {aggregate}"), form, aggregate, "cpu")


def test_a_threshold_of_doubles_is_exact_for_floats() -> None:
    """A third rounded to f32 is more than a third: a feature of that is above the threshold."""
    third = 1 / 3
    x = np.array([[np.float32(third)], [np.nextafter(np.float32(third), np.float32(0))]])
    stump = TreeNode(split=third, children=[TreeNode(weights={0: 1.0}), TreeNode(weights={0: 2.0})])
    attributes = as_doubles(listed([stump], "target", random.Random(0)))
    model = ml_model("TreeEnsembleRegressor", [x], opset=3, n_targets=1, **attributes)
    assert run(model, [x])[0].reshape(-1).tolist() == [2, 1]


def classifier(weights: list[dict[int, float]], **attributes: Any) -> Any:
    """A stump: at most 0, or above."""
    stump = TreeNode(children=[TreeNode(weights=leaf) for leaf in weights])
    x = np.array([[-1], [1]], np.float32)
    listing = listed([stump], "class", random.Random(0))
    model = ml_model("TreeEnsembleClassifier", [x], CLASSIFIED, **(listing | attributes))
    return model, [x]


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_scores_of_several_classes(transform: str) -> None:
    weights = [{0: 0.3, 2: 0.25}, {1: 0.75, 2: 0.125}]
    labels = {"classlabels_int64s": [7, 9, 11], "base_values": [0.125, 0.0, 0.0625]}
    model, inputs = classifier(weights, post_transform=transform, **labels)
    wanted = expected(model, inputs)
    for backend in BACKENDS:
        same(run(model, inputs, backend), wanted)


@pytest.mark.parametrize(
    ("weights", "transform", "base"),
    [
        ([{0: 0.3}, {0: 0.8}], "NONE", []),
        ([{0: -0.3}, {0: 0.8}], "NONE", []),
        ([{0: -0.3}, {0: 0.8}], "NONE", [0.25]),
        ([{0: -0.3}, {0: 0.8}], "LOGISTIC", []),
        ([{0: -0.3}, {0: 0.8}], "LOGISTIC", [0.5]),
    ],
)
def test_one_score_of_two_classes(
    weights: list[dict[int, float]], transform: str, base: list[float]
) -> None:
    attributes: dict[str, Any] = {"base_values": base} if base else {}
    attributes |= {"post_transform": transform, "classlabels_int64s": [7, 9]}
    model, inputs = classifier(weights, **attributes)
    same(run(model, inputs), expected(model, inputs))


def test_labels_are_those_of_the_highest_scores() -> None:
    """onnxruntime gives 7 for a probability of 0.57 that it is 9, and applies no softmax."""
    weights, labels = [{0: 0.3}, {0: 0.8}], [7, 9]
    for transform, chance in (
        ("LOGISTIC", 1 / (1 + np.exp(-0.3))),
        ("SOFTMAX", 1 / (1 + np.exp(-0.6))),
    ):
        model, inputs = classifier(weights, post_transform=transform, classlabels_int64s=labels)
        label, scores = run(model, inputs)
        assert label.tolist() == [9, 9]
        np.testing.assert_allclose(scores[0], [1 - chance, chance], rtol=1e-6)


def test_a_bare_leaf_is_a_tree() -> None:
    model, inputs = classifier([{0: 1.0}, {1: 1.0}], classlabels_int64s=[3, 4, 5])
    leaf = TreeNode(weights={2: 4.0, 1: 3.5})
    attributes = listed([leaf], "class", random.Random(0))
    model = ml_model(
        "TreeEnsembleClassifier", inputs, CLASSIFIED, classlabels_int64s=[3, 4, 5], **attributes
    )
    for backend in BACKENDS:
        labels, scores = run(model, inputs, backend)
        assert labels.tolist() == [5, 5]
        assert scores.tolist() == [[0, 3.5, 4]] * 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nodes_modes": ["BRANCH_MEMBER", "LEAF", "LEAF"]}, "expected BRANCH_LEQ or the like"),
        ({"nodes_modes": ["BRANCH_LEQ"] * 3}, "a branch that is reached in two ways"),
        ({"nodes_truenodeids": [9, 0, 0]}, "'nodes_truenodeids': a node is named that there is"),
        ({"nodes_nodeids": [0, 1, 1]}, "a tree has two nodes with the same id"),
        ({"nodes_values": [1.0]}, "'nodes_values': expected 3 elements, got 1"),
        ({"nodes_featureids": [2, 0, 0]}, "expected features below 1, got 2 to 2"),
        ({"target_ids": [3, 3]}, "expected targets below 1, got 3"),
        ({"target_nodeids": [5, 5]}, "'target_nodeids': a node is named that there is not"),
        ({"aggregate_function": "MEDIAN"}, "expected one of AVERAGE, SUM, MIN, MAX"),
        (
            {"post_transform": "TANH"},
            "expected one of NONE, SOFTMAX, LOGISTIC, SOFTMAX_ZERO, PROBIT",
        ),
        ({"base_values": [1.0, 2.0]}, "expected 1 numbers to add to scores, got 2"),
    ],
)
def test_trees_that_are_none(change: dict[str, Any], message: str) -> None:
    leaves = [TreeNode(weights={0: 1.0}), TreeNode(weights={0: 2.0})]
    attributes = listed([TreeNode(children=leaves)], "target", random.Random(0))
    x = np.zeros((2, 1), np.float32)
    model = ml_model("TreeEnsembleRegressor", [x], n_targets=1, **(attributes | change))
    with pytest.raises(glowpy.UserError, match=message):
        glowpy.load(model)


# Linear models and support vectors.

X = np.array([[0.2, 1.5], [-0.7, 0.25], [2.0, -1.0]], np.float32)
THREE: dict[str, Any] = {
    "coefficients": [1.0, -1.0, 0.5, 0.25, -0.5, 2.0],
    "intercepts": [0.1, 0.2, -0.3],
    "classlabels_ints": [7, 9, 11],
}


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_linear_classifier(transform: str) -> None:
    model = ml_model("LinearClassifier", [X], CLASSIFIED, post_transform=transform, **THREE)
    scores = X @ np.array(THREE["coefficients"]).reshape(3, 2).T + THREE["intercepts"]
    labels, got = run(model, [X])
    reference = expected(model, [X])
    same([got], reference[1:])
    best = scores.argmax(1)
    assert labels.tolist() == [THREE["classlabels_ints"][place] for place in best]


def test_linear_classifier_with_one_score() -> None:
    """The standard leaves open what the other score is: the opposite."""
    model = ml_model(
        "LinearClassifier",
        [X],
        CLASSIFIED,
        coefficients=[1.0, -1.0],
        intercepts=[0.5],
        classlabels_ints=[7, 9],
    )
    labels, scores = run(model, [X])
    own = X[:, 0] - X[:, 1] + 0.5
    np.testing.assert_allclose(scores, np.stack([-own, own], 1), rtol=1e-6)
    assert labels.tolist() == expected(model, [X])[0].tolist()


@pytest.mark.parametrize("op_type", ["LinearClassifier", "LinearRegressor"])
def test_coefficients_after_the_last_row_are_not_read(op_type: str) -> None:
    """The iris model that comes with onnxruntime has two rows too many."""
    spare = {"coefficients": [*THREE["coefficients"], 9.0, 8.0, 7.0, 6.0, 5.0, 4.0]}
    outputs = CLASSIFIED if op_type == "LinearClassifier" else (FLOAT,)
    attributes = THREE | spare if op_type == "LinearClassifier" else spare | {"targets": 3}
    model = ml_model(op_type, [X], outputs, **attributes)
    same(run(model, [X]), expected(model, [X]))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64])
def test_linear_regressor(dtype: Any) -> None:
    x = (4 * X).astype(dtype)
    model = ml_model(
        "LinearRegressor", [x], coefficients=[0.5, 1.0, -1.0, 2.0], intercepts=[0.1, 0.2], targets=2
    )
    wanted = x @ np.array([[0.5, -1.0], [1.0, 2.0]]) + [0.1, 0.2]
    same(run(model, [x]), [wanted.astype(np.float32)])
    one = ml_model("LinearRegressor", [x[0]], coefficients=[0.5, 1.0])
    same(run(one, [x[0]]), [(x[:1] @ np.array([[0.5], [1.0]])).astype(np.float32)])


def machine(kernel: str, classes: int, chances: bool) -> dict[str, Any]:
    rng = np.random.default_rng(classes)
    counts = [2, 3, 1, 2][:classes]
    pairs = classes * (classes - 1) // 2
    attributes: dict[str, Any] = {
        "kernel_type": kernel,
        "kernel_params": [0.5, 0.25, 3.0],
        "vectors_per_class": counts,
        "support_vectors": rng.normal(size=2 * sum(counts)).tolist(),
        "coefficients": rng.normal(size=(classes - 1) * sum(counts)).tolist(),
        "rho": rng.normal(size=pairs).tolist(),
        "classlabels_ints": [4, 2, 8, 6][:classes],
    }
    if chances:
        attributes |= {"prob_a": (-rng.uniform(1, 2, pairs)).tolist(), "prob_b": [0.1] * pairs}
    return attributes


@pytest.mark.parametrize("chances", [False, True])
@pytest.mark.parametrize("classes", [2, 3, 4])
@pytest.mark.parametrize("kernel", ["LINEAR", "POLY", "RBF", "SIGMOID"])
def test_svm_classifier(kernel: str, classes: int, chances: bool) -> None:
    x = np.random.default_rng(1).normal(size=(20, 2)).astype(np.float32)
    attributes = machine(kernel, classes, chances)
    model = ml_model("SVMClassifier", [x], CLASSIFIED, **attributes)
    same(run(model, [x]), expected(model, [x]))


def test_linear_svm_classifier() -> None:
    """Without support vectors; onnxruntime does not have it."""
    attributes: dict[str, Any] = {"coefficients": [1.0, 2.0, -1.0, 0.5], "rho": [0.25]}
    attributes["classlabels_ints"] = [5, 3]
    model = ml_model("SVMClassifier", [X], CLASSIFIED, **attributes)
    scores = X @ np.array([[1.0, -1.0], [2.0, 0.5]]) + 0.25
    labels, got = run(model, [X])
    np.testing.assert_allclose(got, scores, rtol=1e-6)
    assert labels.tolist() == [5 if row[0] >= row[1] else 3 for row in scores]


@pytest.mark.parametrize("one_class", [0, 1])
@pytest.mark.parametrize("kernel", ["LINEAR", "POLY", "RBF", "SIGMOID"])
def test_svm_regressor(kernel: str, one_class: int) -> None:
    attributes = machine(kernel, 2, False)
    kept = {
        k: attributes[k]
        for k in ("kernel_type", "kernel_params", "support_vectors", "coefficients", "rho")
    }
    model = ml_model("SVMRegressor", [X], n_supports=5, one_class=one_class, **kept)
    same(run(model, [X]), expected(model, [X]))


def test_far_support_vectors_lose_nothing() -> None:
    """Squares of such features have no place for their differences in f32."""
    x = np.array([[30000.5], [30001.0]], np.float32)
    attributes: dict[str, Any] = {
        "kernel_type": "RBF",
        "kernel_params": [1.0, 0.0, 0.0],
        "rho": [0.0],
    }
    model = ml_model(
        "SVMRegressor",
        [x],
        n_supports=1,
        support_vectors=[30000.0],
        coefficients=[1.0],
        **attributes,
    )
    for backend in BACKENDS:
        same(run(model, [x], backend), [np.exp([[-0.25], [-1.0]]).astype(np.float32)])


# Features.

FEATURES = np.array([[1, -4, 2], [0, 0, 0], [-1, -2, -3], [np.inf, 1, 2]], np.float32)
MISSING = np.where(np.isinf(FEATURES), np.nan, FEATURES).astype(np.float32)


@pytest.mark.parametrize(
    ("op_type", "attributes"),
    [
        ("Normalizer", {"norm": "MAX"}),
        ("Normalizer", {"norm": "L1"}),
        ("Normalizer", {"norm": "L2"}),
        ("Scaler", {"offset": [1.0], "scale": [2.0]}),
        ("Scaler", {"offset": [1.0, 2.0, 3.0], "scale": [2.0, 0.5, 1.0]}),
        ("Imputer", {"imputed_value_floats": [9.0], "replaced_value_float": float("nan")}),
        ("Imputer", {"imputed_value_floats": [9.0, 8.0, 7.0], "replaced_value_float": 2.0}),
    ],
)
def test_features_are_prepared(op_type: str, attributes: dict[str, Any]) -> None:
    for x in (FEATURES[:3] if op_type == "Normalizer" else MISSING, FEATURES[0]):
        model = ml_model(op_type, [x], **attributes)
        wanted = expected(model, [x])
        for backend in BACKENDS:
            same(run(model, [x], backend), wanted)


def test_integers_are_prepared() -> None:
    x = np.array([[3, -4], [1 << 40, 0]])
    model = ml_model("Imputer", [x], (INT64,), imputed_value_int64s=[5], replaced_value_int64=-4)
    same(run(model, [x]), [np.array([[3, 5], [1 << 40, 0]])])
    model = ml_model("Binarizer", [x], (INT64,), threshold=2.5)
    same(run(model, [x]), [np.array([[1, 0], [1, 0]])])
    model = ml_model("Scaler", [x], offset=[float(1 << 40), 0.0], scale=[1.0, 1.0])
    (scaled,) = run(model, [x])
    same([scaled[1:]], [np.zeros((1, 2), np.float32)])
    narrow = np.array([[1, 2]], np.int32)
    model = ml_model("Imputer", [narrow], (TensorProto.INT32,), imputed_value_int64s=[1 << 40])
    with pytest.raises(glowpy.UserError, match="expected numbers that"):
        glowpy.load(model)


def test_features_are_put_together() -> None:
    inputs = [FEATURES[:2], FEATURES[:2, :2]]
    for sizes in ([3, 2], [2, 4]):
        model = ml_model("FeatureVectorizer", inputs, inputdimensions=sizes)
        same(run(model, inputs), expected(model, inputs))
    whole = ml_model("FeatureVectorizer", [FEATURES[0].astype(np.int64)])
    same(run(whole, [FEATURES[0].astype(np.int64)]), [FEATURES[:1]])


@pytest.mark.parametrize("indices", [[2, 0], [[2, 0]], [[2], [0]], [1]])
@pytest.mark.parametrize("shape", [(4, 3), (2, 2, 3), (3,)])
def test_features_are_extracted(shape: tuple[int, ...], indices: object) -> None:
    x = np.arange(12, dtype=np.float32)[: int(np.prod(shape))].reshape(shape)
    inputs = [x, np.array(indices)]
    model = ml_model("ArrayFeatureExtractor", inputs)
    same(run(model, inputs), expected(model, inputs))


# Categories.


def test_one_hot_encoder() -> None:
    for x in (
        np.array([3, 5, 4]),
        np.array([[3.7, 5.0, -1.0]], np.float32),
        np.array([[5]], np.int32),
    ):
        model = ml_model("OneHotEncoder", [x], cats_int64s=[5, 3], zeros=1)
        wanted = expected(model, [x]) if x.dtype != np.int32 else [np.array([[[1, 0]]], np.float32)]
        for backend in BACKENDS:
            same(run(model, [x], backend), wanted)


def test_one_hot_encoder_of_many_categories() -> None:
    """No table with a row for each."""
    x = np.array([70_000, -3, 5])
    model = ml_model("OneHotEncoder", [x], cats_int64s=[*range(70_000, 0, -1)])
    (got,) = run(model, [x])
    assert np.argwhere(got).tolist() == [[0, 0], [2, 69_995]]


NAN = float("nan")


@pytest.mark.parametrize(
    ("x", "attributes", "wanted"),
    [
        ([3, 5, 4], {"keys_int64s": [5, 3], "values_int64s": [1, 2]}, np.array([2, 1, -1])),
        (
            [3, 5, 4],
            {"keys_int64s": [5, 3], "values_floats": [1.5, 2.5]},
            np.array([2.5, 1.5, -0.0], np.float32),
        ),
        (
            [3, 4],
            {"keys_int64s": [3, 3], "values_floats": [1.5, 2.5]},
            np.array([2.5, -0.0], np.float32),
        ),
        (
            np.array([NAN, 0.0, -0.0, 7.0], np.float32),
            {"keys_floats": [NAN, 0.0], "values_int64s": [4, 6], "default_int64": 9},
            np.array([4, 6, 6, 9]),
        ),
        (
            [[1, 2]],
            {"keys_int64s": [2], "values_floats": [4.0], "default_float": 0.5},
            np.array([[0.5, 4]], np.float32),
        ),
    ],
)
def test_label_encoder(x: Any, attributes: dict[str, Any], wanted: Array) -> None:
    x = np.asarray(x)
    kind = INT64 if wanted.dtype == np.int64 else FLOAT
    model = ml_model("LabelEncoder", [x], (kind,), 4, **attributes)
    for backend in BACKENDS:
        (got,) = run(model, [x], backend)
        assert got.dtype == wanted.dtype
        assert got.tolist() == wanted.tolist()
        assert (np.signbit(got) == np.signbit(wanted)).all()


@pytest.mark.parametrize(
    ("op_type", "attributes", "message"),
    [
        ("Normalizer", {"norm": "L3"}, "attribute 'norm': expected one of MAX, L1, L2, got 'L3'"),
        ("Scaler", {"offset": [1.0, 2.0]}, "expected 1 number or one for each feature"),
        ("Imputer", {"imputed_value_int64s": [1]}, "'imputed_value_floats' is required for f32"),
        ("LinearRegressor", {"coefficients": [1.0]}, "expected 1 rows of . numbers, got 1"),
        (
            "LinearRegressor",
            {"coefficients": [1.0], "targets": 2},
            "expected 2 rows of . numbers, got 1",
        ),
        (
            "SVMRegressor",
            {"n_supports": 1, "coefficients": [1.0], "kernel_type": "COSINE"},
            "expected one of LINEAR, POLY",
        ),
        (
            "LinearRegressor",
            {"targets": 1 << 62},
            "expected 4611686018427387904 rows of . numbers, got 0",
        ),
        ("LabelEncoder", {"keys_floats": [1.0]}, "expected one attribute of values, got none"),
        (
            "LabelEncoder",
            {"keys_floats": [1.0], "values_floats": [1.0, 2.0]},
            "as many values as keys",
        ),
    ],
)
def test_what_contradicts_itself_is_refused(
    op_type: str, attributes: dict[str, Any], message: str
) -> None:
    model = ml_model(op_type, [FEATURES], opset=4, **attributes)
    with pytest.raises(glowpy.UserError, match=message):
        glowpy.load(model)


# Hostile attributes.


def damaged(value: Any) -> list[Any]:
    """What may stand in the place of an attribute: less, more, and numbers beyond everything."""
    if isinstance(value, list):
        wild: list[Any] = [(1 << 62), -1] if isinstance(value[0], int) else [np.nan, 1e38]
        wild = ["LEAF", ""] if isinstance(value[0], str) else wild
        return [value[:1], value * 2, *([item, *value[1:]] for item in wild)]
    return [1 << 62, -1] if isinstance(value, int) else [value]


def test_damaged_attributes_are_errors() -> None:
    rng = random.Random(3)
    forest = [tree(rng, 3, 2, 3, 6) for _ in range(2)]
    cases: list[tuple[str, tuple[int, ...], dict[str, Any]]] = [
        ("TreeEnsembleRegressor", (FLOAT,), listed(forest, "target", rng) | {"n_targets": 3}),
        ("TreeEnsembleClassifier", CLASSIFIED, listed(forest, "class", rng) | {"classlabels_int64s": [1, 2, 3]}),
        ("LinearClassifier", CLASSIFIED, THREE),
        ("SVMClassifier", CLASSIFIED, machine("RBF", 3, True)),
        ("OneHotEncoder", (FLOAT,), {"cats_int64s": [3, 4]}),
        ("FeatureVectorizer", (FLOAT,), {"inputdimensions": [2]}),
        ("Scaler", (FLOAT,), {"offset": [1.0, 2.0]}),
    ]  # fmt: skip
    refused = 0
    for op_type, outputs, attributes in cases:
        for name, value in attributes.items():
            for other in damaged(value):
                model = ml_model(op_type, [X], outputs, **(attributes | {name: other}))
                try:
                    glowpy.load(model)
                except glowpy.UserError:
                    refused += 1
    assert refused > 60


def test_each_label_has_a_score() -> None:
    attributes = THREE | {"classlabels_ints": [1, 2]}
    model = ml_model("LinearClassifier", [X], CLASSIFIED, **attributes)
    with pytest.raises(glowpy.UserError, match="expected a label for each score, got 2 for f32"):
        glowpy.load(model)


def test_what_a_session_gives_has_a_remedy_for_machine_code() -> None:
    """`glowpy.load` is for machine code alone, and so are bundles."""
    model, inputs = classifier([{0: 1.0}, {1: 1.0}], classlabels_strings=["no", "yes"])
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.STRING
    (labels, _) = run(model, inputs)
    assert labels.tolist() == ["no", "yes"]
    with pytest.raises(glowpy.UserError, match="'y0': element type STRING is not supported"):
        glowpy.load(model)
    del model.graph.output[0]
    with pytest.raises(glowpy.UserError, match="train with integers for machine code alone"):
        glowpy.load(model)
    maps = ml_model("ZipMap", inputs, classlabels_int64s=[4])
    with pytest.raises(glowpy.UserError, match=r"options=\{'zipmap': False\}"):
        glowpy.load(maps)
