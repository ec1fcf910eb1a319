"""What `emucoll ett` is asked: the spec, profiles of training jobs, and the inputs they make."""
