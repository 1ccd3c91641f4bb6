"""What describes a cluster, as one would try it out; `python cluster_spec.py` checks all of it.

>>> import sidereal.v1 as tf

A dictionary that maps names of jobs to lists of network addresses:

>>> dict = {'local': ['localhost:2222', 'localhost:2223']}
>>> tf.train.ClusterSpec(dict)
ClusterSpec({'local': ['localhost:2222', 'localhost:2223']})

Its tasks are /job:local/task:0 and /job:local/task:1. With more jobs:

>>> dict = {
...     'ps': [
...         'ps0.example.com:2222',
...         'ps1.example.com:2222'
...     ],
...     'worker': [
...         'worker0.example.com:2222',
...         'worker1.example.com:2222',
...         'worker2.example.com:2222'
...     ]}
>>> dict['ps']
['ps0.example.com:2222', 'ps1.example.com:2222']
>>> cluster = tf.train.ClusterSpec(dict)

Its tasks are /job:ps/task:0, /job:ps/task:1, /job:worker/task:0, /job:worker/task:1 and
/job:worker/task:2.

>>> cluster.jobs
['ps', 'worker']
>>> cluster.as_cluster_def()
job {
  name: "ps"
  tasks {
    value: "ps0.example.com:2222"
  }
  tasks {
    key: 1
    value: "ps1.example.com:2222"
  }
}
job {
  name: "worker"
  tasks {
    value: "worker0.example.com:2222"
  }
  tasks {
    key: 1
    value: "worker1.example.com:2222"
  }
  tasks {
    key: 2
    value: "worker2.example.com:2222"
  }
}
<BLANKLINE>
>>> cluster.as_dict() == dict
True
>>> cluster.job_tasks('worker')
['worker0.example.com:2222', 'worker1.example.com:2222', 'worker2.example.com:2222']
>>> cluster.num_tasks('worker')
3
>>> cluster.task_address('worker', 2)
'worker2.example.com:2222'
>>> cluster.task_indices('worker')
[0, 1, 2]
"""

import doctest
import sys

if __name__ == "__main__":
    failed, tried = doctest.testmod()
    print(f"{tried - failed} of {tried} lines are as they were said to be")
    sys.exit(failed != 0)
