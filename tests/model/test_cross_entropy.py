"""The chunked loss and its gradients match torch's for any chunk size."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from bertmill import BertConfig, BertForPreTraining
from bertmill.model import cross_entropy
from bertmill.model.cross_entropy import linear_cross_entropy


@pytest.mark.parametrize("elements", [1, 500, 1 << 23])
@pytest.mark.parametrize("rows", [1, 17])
def test_loss_and_gradients_match_torch(elements: int, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cross_entropy, "_ELEMENTS_PER_CHUNK", elements)
    monkeypatch.setattr(cross_entropy, "_COLUMNS_PER_PRODUCT", 40)
    torch.manual_seed(0)
    tensors = [torch.randn(rows, 8), torch.randn(101, 8), torch.randn(101)]
    targets = torch.randint(0, 101, (rows,))
    targets[0] = F.linear(*tensors)[0].argmax()  # at least one prediction is correct
    mine = [tensor.double().requires_grad_() for tensor in tensors]
    other = [tensor.double().requires_grad_() for tensor in tensors]
    loss, num_right = linear_cross_entropy(*mine, targets)
    expected = F.cross_entropy(F.linear(*other), targets)
    torch.testing.assert_close(loss, expected)
    assert num_right == (F.linear(*other).argmax(1) == targets).sum()
    (3 * loss).backward()
    (3 * expected).backward()
    for tensor, same in zip(mine, other, strict=True):
        torch.testing.assert_close(tensor.grad, same.grad)


def test_a_very_unlikely_target_has_a_finite_loss() -> None:
    weight = torch.tensor([[1.0], [-1.0]])
    loss, _ = linear_cross_entropy(torch.tensor([[500.0]]), weight, torch.zeros(2), torch.tensor([1]))
    assert loss == 1000


def test_without_rows_the_loss_is_nan_and_the_gradient_zero() -> None:
    states = torch.zeros(0, 4, requires_grad=True)
    weight = torch.randn(5, 4, requires_grad=True)
    loss, _ = linear_cross_entropy(states, weight, torch.zeros(5), torch.zeros(0, dtype=int))
    assert loss.isnan()
    loss.backward()
    assert not weight.grad.any()


def test_a_confident_prediction_with_large_logits_has_an_exact_loss() -> None:
    torch.manual_seed(0)
    states, weight = torch.randn(4, 8), torch.randn(100, 8)
    for offset in (0.0, 20.0, 200.0):
        bias = torch.full((100,), offset)
        bias[7] += 30
        targets = torch.full((4,), 7)
        exact = torch.nn.functional.cross_entropy((states.double() @ weight.double().T) + bias.double(), targets)
        theirs = torch.nn.functional.cross_entropy(states @ weight.T + bias, targets)
        ours, _ = linear_cross_entropy(states, weight, bias, targets)
        assert abs(ours - exact) <= 2 * abs(theirs - exact) + 1e-6


@pytest.mark.usefixtures("bf16")
@pytest.mark.parametrize("training", [True, False])
def test_models_run_under_autocast(training: bool) -> None:
    model = BertForPreTraining(BertConfig.of_size("tiny", vocab_size=100)).train(training)
    ids = torch.randint(5, 100, (2, 16))
    with torch.autocast("cpu", torch.bfloat16):
        output = model(ids, labels=ids, next_sentence_label=torch.tensor([0, 1]))
    output.loss.backward()
    assert torch.isfinite(output.loss)
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)
