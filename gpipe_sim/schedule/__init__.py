"""What a schedule is: actions in an order, what each needs and holds. No time, arrays or colour."""
