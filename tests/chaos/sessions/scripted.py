"""The command `reelabel` with the stub engine in the place of vLLM, whose process starts in half a second."""

from flows.cli.main import main
from tasks.model.engine.process import EngineProcess
from tests.stub_engine import COMMAND

if __name__ == "__main__":
    EngineProcess.default_command = COMMAND
    main()
