# The one table of modules: the order they are configured in (lowest first) and what each may use.
#
# SIDEREAL_MAY_USE_<module> lists the modules a module may name in DEPS. Whatever those may use is
# allowed as well, provided it is named directly. An edge outside this table fails at configure
# time; tools/check_modules.py compares it with the #include lines and with ARCHITECTURE.md.

set(SIDEREAL_KNOWN_MODULES
    base
    config
    metrics
    sys
    security
    cluster
    tensor
    parse
    kernels
    ir
    ops
    reference
    autodiff
    passes
    partition
    program
    lane
    wire
    scrape
    transport
    resources
    ckpt
    coord
    membership
    ports
    exec
    eager
    serving
    data
    dataset
    task
    master
    service
    app
    train
    cli)

# The plan side never sees threads, clocks, sockets or files.
set(SIDEREAL_PLAN_MODULES ir ops autodiff passes partition program)

# The run side never sees a graph: of the plan side it may include SIDEREAL_RUNNABLE_HEADERS alone,
# which say what runs.
set(SIDEREAL_RUNNABLE_HEADERS program/program.h)
set(SIDEREAL_RUN_MODULES security lane wire scrape transport resources ckpt coord membership ports
    task)

set(SIDEREAL_MAY_USE_base "")
set(SIDEREAL_MAY_USE_config base)
set(SIDEREAL_MAY_USE_metrics base)
set(SIDEREAL_MAY_USE_sys base)
set(SIDEREAL_MAY_USE_security base sys)
set(SIDEREAL_MAY_USE_cluster base)
set(SIDEREAL_MAY_USE_tensor base)
set(SIDEREAL_MAY_USE_parse base)
set(SIDEREAL_MAY_USE_kernels base tensor)
set(SIDEREAL_MAY_USE_ir base tensor)
set(SIDEREAL_MAY_USE_ops base tensor kernels ir)
# Tests only: a plain interpreter to check gradients and kernels against.
set(SIDEREAL_MAY_USE_reference base tensor ir ops)
set(SIDEREAL_MAY_USE_autodiff base tensor ir ops)
set(SIDEREAL_MAY_USE_passes base tensor ir ops)
set(SIDEREAL_MAY_USE_partition base tensor ir ops passes)
set(SIDEREAL_MAY_USE_program base tensor ir ops partition)
set(SIDEREAL_MAY_USE_lane base sys metrics config)
set(SIDEREAL_MAY_USE_wire base tensor)
set(SIDEREAL_MAY_USE_scrape base sys security metrics lane)
set(SIDEREAL_MAY_USE_transport base tensor sys security metrics config lane wire)
set(SIDEREAL_MAY_USE_resources base metrics sys tensor)
set(SIDEREAL_MAY_USE_ckpt base tensor parse sys)
set(SIDEREAL_MAY_USE_coord base)
set(SIDEREAL_MAY_USE_membership base)
set(SIDEREAL_MAY_USE_ports base tensor lane)
set(SIDEREAL_MAY_USE_exec
    base sys tensor parse ir ops program kernels lane ports metrics resources ckpt)
# Like exec it stands on both sides: it makes programs of ops and graphs, and runs them at once.
set(SIDEREAL_MAY_USE_eager
    base sys tensor kernels ir ops autodiff passes partition program exec ports resources)
# Models that are served run as functions do; nothing of a cluster is here.
set(SIDEREAL_MAY_USE_serving base sys security parse tensor ir eager)
set(SIDEREAL_MAY_USE_data base tensor parse sys config)
# Its functions run as those of a program do.
set(SIDEREAL_MAY_USE_dataset base tensor parse sys ir ops ports data eager)
# `data`: loops of sessions are fed on the worker.
set(SIDEREAL_MAY_USE_task
    base config metrics sys cluster tensor program resources lane wire transport ports exec data)
set(SIDEREAL_MAY_USE_master
    base cluster tensor kernels ir ops passes partition program exec task data)
set(SIDEREAL_MAY_USE_service
    base metrics sys security cluster tensor resources ir passes membership ports task master)
set(SIDEREAL_MAY_USE_app
    base config metrics sys security cluster tensor kernels ir ops passes partition program
    resources lane wire transport scrape coord ports exec data dataset task master service)
set(SIDEREAL_MAY_USE_train
    base metrics sys security cluster tensor kernels ir ops autodiff data service app)
set(SIDEREAL_MAY_USE_cli
    base config metrics sys security cluster tensor kernels ir ops autodiff passes partition
    program lane wire transport ckpt coord ports exec eager data dataset task master service
    app train)
