from gputax.api import advise as advise
from gputax.api import collect as collect
from gputax.api import compare as compare
from gputax.api import cost as cost
from gputax.api import deploy as deploy
from gputax.api import deploy_plan as deploy_plan
from gputax.api import destroy as destroy
from gputax.api import duet as duet
from gputax.api import load_plan as load_plan
from gputax.api import own_model as own_model
from gputax.api import plan_like as plan_like
from gputax.api import read_results as read_results
from gputax.api import report as report
from gputax.api import resolution as resolution
from gputax.api import run as run
from gputax.api import share as share
from gputax.api import share_plan as share_plan
from gputax.api import status as status

__version__: str
PUBLIC: tuple[str, ...]

def end_at_once(number: int, frame: object) -> None: ...
