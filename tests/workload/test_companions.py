import torch
from torch import nn

from advisor.workload.companions import companions_of

MODEL = nn.Linear(2, 2)
CRITIC = nn.Sequential(nn.Linear(2, 2))
UNUSED = nn.Linear(3, 3)


def uses_a_global(batch):
    return CRITIC(batch)


def names(found):
    return {id(value) for value in found}


def test_the_globals_that_a_function_names_are_found():
    assert names(companions_of(MODEL, [uses_a_global])) == {id(CRITIC)}


def test_so_are_those_that_its_helpers_and_inner_functions_name():
    def inner(batch):
        return [uses_a_global(part) for part in batch]

    def step(model, batch):
        return (lambda: inner(batch))()

    assert names(companions_of(MODEL, [step])) == {id(CRITIC)}


def test_closures_and_defaults_are_followed():
    teacher, other = nn.Linear(2, 2), nn.Linear(2, 2)
    optimizer = torch.optim.SGD(teacher.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    scaler = torch.amp.GradScaler("cpu")

    def step(model, batch, *, by_default=other):
        scaler.scale(teacher(batch))
        optimizer.step()
        scheduler.step()
        return by_default

    expected = {id(value) for value in (teacher, other, optimizer, scheduler, scaler)}
    assert names(companions_of(MODEL, [step])) == expected


def test_the_object_that_a_method_belongs_to_is_followed():
    class Trainer:
        def __init__(self):
            self.networks = {"critic": [nn.Linear(2, 2)]}

        def step(self, model, batch):
            pass

    trainer = Trainer()
    assert names(companions_of(MODEL, [trainer.step])) == {id(trainer.networks["critic"][0])}


def test_the_model_and_its_parts_are_no_companions():
    parent = nn.Sequential(MODEL, nn.ReLU())

    def step(model, batch):
        return parent, parent[0], MODEL

    assert companions_of(parent, [step]) == []


def test_parts_of_a_companion_are_found_once():
    part = CRITIC[0]

    def step(model, batch):
        return CRITIC, part

    assert names(companions_of(MODEL, [step])) == {id(CRITIC)}


def test_data_is_not_searched():
    data = [nn.Linear(2, 2) for _ in range(2000)]

    def step(model, batch):
        return data

    assert companions_of(MODEL, [step]) == []


def test_what_refers_to_itself_ends():
    loop = []
    loop.append(loop)

    def step(model, batch):
        return step, loop

    assert companions_of(MODEL, [step, None]) == []
