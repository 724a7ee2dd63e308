"""The subcommands: one module each, with USAGE_STATUS, add_arguments(parser) and run(args)."""
