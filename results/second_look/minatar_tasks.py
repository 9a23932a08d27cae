"""MinAtar's tasks in gymnasium: the package registers them in a function, which has to be called."""

import minatar.gym

minatar.gym.register_envs()
