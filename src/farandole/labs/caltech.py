"""The caltech lab: a new head on a frozen network, 257 categories, 2 to 8 GPUs of two kinds."""

from __future__ import annotations

from farandole.labs.lab import Rate
from farandole.labs.plan import EIGHT, FOUR, TWO
from farandole.labs.rows import Row
from farandole.labs.transfer import TransferLab, code_question, efforts, transfer_lab

CALTECH = TransferLab(
    name="caltech",
    rate=0.003,
    original_rate=1.0,
    guess_rate=Rate(samples_per_s=400.0, startup_s=7.5),
    readings=("adadelta", "adam"),
    epochs=30,
    train="24,486 (80 % of 30,607)",
    test="6,121 (20 %)",
    train_images=24_486,
    test_images=6_121,
    workers="2 and 4 T4, 4 and 8 V100",
    devices=("T4", "V100"),
    projected="V100",
    guess=Row(epoch_s=22.0, epochs=30.0, job_s=690.0),
    seen="The lab saw validation accuracy level off around epoch 15 on 2 T4, far below training "
    "accuracy.",
    trained="The lab names no optimizer, and the only 1.0 x size() that it shows is Adadelta's. It "
    "did train (0.8610 to 0.8713 in training).",
    efforts=efforts(
        (240, 60, 6, 1, TWO, 1, (2,), False),
        (300, 100, 6, 1, TWO, 1, (2,), False),
        (300, 150, 8, 1, FOUR, 1, (2,), False),
        (400, 150, 10, 1, FOUR, 2, (2,), False),
        (400, 300, 10, 2, FOUR, 2, (2,), True),
        (400, 300, 10, 3, FOUR, 2, TWO, True),
        (600, 300, 12, 3, FOUR, 2, TWO, True),
        (800, 300, 15, 3, FOUR, 3, TWO, True),
        (1200, 300, 15, 3, FOUR, 3, TWO, True),
        (1200, 300, 30, 3, FOUR, 3, FOUR, True),
        (1200, 300, 30, 5, FOUR, 4, FOUR, True),
        (0, 0, 30, 5, EIGHT, 4, FOUR, True),
        (0, 0, 30, 1, EIGHT, 4, FOUR, True),
    ),
)

CODE = code_question(
    "How does the lab's code differ from that of fruits?",
    "fruits",
    (
        ("epochs", "10", "30"),
        ("base network", "fine-tuned", "frozen"),
        ("outputs of the dense head", "6", "257"),
        ("learning rate", "Adam, 0.1 x size()", "1.0 x size(), optimizer not named"),
        ("validation data", "a folder of its own", "20 % of the photos"),
        ("augmentation", "zoom 1 %, shifts 1 %", "rotation 5 %, zoom 20 %, shifts 20 %, flip"),
        ("batch per worker", "32", "32"),
    ),
    "Against fruits, the lab trains three times the epochs (30), only the head (257 outputs, not "
    "6), at ten times the rate, on 80 % of the photos, with stronger augmentation.",
    "More classes usually need more epochs, and a frozen base tolerates a larger rate.",
)

CORRECTIONS = (
    (
        "Epoch time: 209 s on 2 T4 and 81 s on 4, in jobs of 1:38:30 and 43:14.",
        "That is 2.58 times with twice the workers, more than linear, and 30 x 209 s are longer "
        "than the job: one of the figures is wrong. Nothing is projected from it here.",
        """209 / 81 is 2.58; 30 x 209 s is 1 h 44 min, and the job took 1 h 38 min, which leaves \
at most 197 s per epoch. Here an epoch takes \
{{ timed | each("{epoch_s.value:seconds} with {workers:workers}") }}.""",
    ),
    (
        "Accuracies stay within 1 % of each other.",
        "The validation accuracies span {{ span | in_points }} points.",
        """0.6888 - 0.6719 = 0.0169, of {{ ends | each("{validation:four} on {workers} {device}")
}}.""",
    ),
    (
        "Accuracy and workers: a noticeable effect in one place, no correlation in another.",
        "Both cannot hold, and four single runs show neither.",
        """By {{ spec.test_images | whole }} validation images alone, two single runs differ by up \
to {{ least | in_points }} points; the four span {{ span | in_points }}.""",
    ),
    (
        "Epochs to stability: 5 more with each doubling of the GPUs.",
        "By its own figures 4 on T4 and 5 on V100, judged by eye on one run each.",
        "19 - 15 = 4, and 25 - 20 = 5. {{ later }}",
    ),
    (
        "Learning rate: 1.0 x size(), without the name of the optimizer.",
        "A rate says nothing without its optimizer: Adadelta usually trains at 1.0, Adam does not.",
        "{{ rates }} The lab reached 0.86 in training. {{ fits }}",
    ),
)

LAB = transfer_lab(
    CALTECH,
    CODE,
    CORRECTIONS,
    title="caltech: a new head on a frozen network, and what 16 workers would do",
    line="a frozen network: epochs to a stable accuracy by workers, devices, what 16 would do",
    leading=("times", "keeping_accuracy", "sixteen"),
    introduction="The lab trains a new dense head for the 257 categories of Caltech-256 on a "
    "frozen network, with Horovod on 2 and 4 T4 and on 4 and 8 V100. It asks how long jobs and "
    "epochs take, after how many epochs validation accuracy is stable, which configuration gets "
    "there soonest, and what 16 V100 would do.",
    lab_found={
        "keeping_accuracy": "0.6719 to 0.6888 on 2 to 8 GPUs: 1.69 points between them.",
        "sixteen": "The author guesses 22 s per epoch, 30 epochs to stability and slightly more "
        "than 11 min 30 s for the job on 16 V100.",
    },
    original_data={
        "source": "Caltech-256 (2.59 GB, 30,607 photos)",
        "training samples": "24,486 (80 %)",
        "test samples": "6,121 (20 %)",
        "classes": "257",
        "training samples per class": "80 to 827 photos, mean 119 (both parts)",
        "image size": "mean 351 pixels",
    },
    conclusion="""
{{ answers.times.sentences[0] }}
In the lab, doubling the GPUs nearly halves an epoch (80 to 44 s on V100) and adds 4 or 5 epochs \
to stability: the product falls, and 8 V100 are stable soonest.
Its data are large enough for 8 workers: 24,486 photos make 96 steps an epoch, and 48 on 16. What \
workers do to accuracy, its single runs cannot tell.
""",
)
