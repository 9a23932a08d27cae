# sed -f: CleanRL's and LeanRL's scripts for EnvPool 1.0 or newer. Algorithms, storage, copies and logging stay
s/^import gym$/import gymnasium as gym/
s/env_type="gym",/env_type="gymnasium",/
/^    envs\.\(num_envs\|single_[a-z]*_space\) = /d
s/envs\.single_/envs./
s/^class RecordEpisodeStatistics(gym.Wrapper):$/class RecordEpisodeStatistics:\n    def __getattr__(self, name):\n        return getattr(self.env, name)\n/
s/^        super().__init__(env)$/        self.env = env/
s/observations = super().reset(\*\*kwargs)/observations, _ = self.env.reset(**kwargs)/
s/observations, rewards, dones, infos = super().step(action)/observations, rewards, terminated, truncated, infos = self.env.step(action)\n        dones = terminated | truncated/
s/^from gym.wrappers.normalize import/from gymnasium.wrappers.utils import/
# LeanRL: a fix for torch.compile that PyTorch has since had, and now refuses
/^Categorical\.\(logits\|probs\) = property/d
# tensordict makes parameters of what LeanRL shares without them: the rollout would keep a graph
s/^    agent_inference_p.to_module(agent_inference)$/&\n    agent_inference.requires_grad_(False)/
